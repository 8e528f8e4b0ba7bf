"""Secrets in the forms in which scripts and output hold them, and lines that look like secrets and are none.

Every value is invented. A secret stands between `«` and `»`; `¦` stands within well-known beginnings, so that a scanner of
repositories does not take the corpus for a leak. `forms` takes both out.
"""

import re

SECRETS: dict[str, tuple[str, ...]] = {
    "password, variable of a shell": (
        "DB_PASS=«correct-horse-7»",
        "export DB_PASS='«correct horse 7»'",
        'export DB_PASSWORD="«corr$ect;horse»"',
        "declare -x MYAPP_PASSWD=«Zq81mmPP»",
        "  set -x; LDAP_BIND_PW=«Zq81mmPP» ldapsearch -x",
        "+ DB_PASS=«correct-horse-7»",
        "setenv DB_PASSWORD «Zq81mmPP»",
        "MYSQL_PWD=«s3cr3t!» mysqldump all",
        "env PGPASSWORD=«s3cr3t!» psql -h db -U trainer",
        "export RESTIC_PASSWORD=«s3cr3t!»",
        "SSHPASS=«s3cr3t!» sshpass -e ssh host",
        "DBPASS=«correct-horse-7»",
        "export DOCKER_PASSPHRASE=«correct-horse-7»",
        "SLURM_ACCT_PASSWORD=«correct-horse-7»",
    ),
    "password, JSON": (
        '{"password":"«x»"}',
        '{"user": "ada", "password": "«cor\\"rect»", "host": "db"}',
        '{"db_password" : "«Zq81mmPP»"}',
        '"{\\"password\\": \\"«Zq81mmPP»\\"}"',
        "{'password': '«Zq81mmPP»', 'user': 'ada'}",
        '{"passwd":"«Zq81mmPP»"}',
        '{"password": 12345678}'.replace("12345678", "«12345678»"),
        '{"userPassword":"«Zq81mmPP»"}',
        "Config(user='ada', password='«Zq81mmPP»', host='db')",
    ),
    "password, YAML": (
        "password: «Zq81mmPP»",
        "  db_password: '«correct horse»'",
        '  - password: "«correct horse»"',
        "mysql_root_password:   «Zq81mmPP»  ",
    ),
    "password, TOML and INI": (
        'password = "«Zq81mmPP»"',
        "password = «Zq81mmPP»",
        "StoragePass=«Zq81mmPP»",
        "requirepass «Zq81mmPP»",
        "bind_password='«Zq81mmPP»'",
        "ldap_default_authtok = «Zq81mmPP»",
    ),
    "password, XML": (
        "<password>«Zq81mmPP»</password>",
        '<property name="password" value="«Zq81mmPP»"/>',
        '<add key="DbPassword" value="«Zq81mmPP»" />',
        "<Password type='text'>«Zq81mmPP»</Password>",
    ),
    "password, option of a command": (
        "tool --password «Zq81mmPP» --host db",
        "tool --password=«Zq81mmPP»",
        'tool --password "«correct horse»" -v',
        "tool --db-password='«correct horse»'",
        "tool --passwd «Zq81mmPP»",
        "argv: ['tool', '--password', '«Zq81mmPP»', '-v']",
        "openssl rsa -in k.pem -passin pass:«Zq81mmPP»",
        "ldapsearch -x -D cn=admin -w «Zq81mmPP» -b dc=site",
        "wget --http-password=«Zq81mmPP» https://site/file",
        "wget --http-user=ada --http-passwd «Zq81mmPP» https://site/file",
    ),
    "mysql -p": (
        "mysql -u root -p«Zq81mmPP» jobs",
        "mysqldump -uroot -p'«Zq81mmPP»' jobs > x.sql",
        "mariadb -h db -uroot -p«Zq81mmPP»",
        "mysqladmin -p«Zq81mmPP» status",
    ),
    "sshpass -p": (
        "sshpass -p «Zq81mmPP» ssh ada@login",
        "sshpass -p'«Zq81mmPP»' scp f ada@login:",
        "sshpass -p«Zq81mmPP» rsync -a x y",
    ),
    "curl -u": (
        "curl -u ada:«Zq81mmPP» https://site/api",
        "curl --user ada:«Zq81mmPP» https://site/api",
        "curl -sS -u 'ada:«Zq81mmPP»' https://site/api",
        "curl -sSuada:«Zq81mmPP» https://site/api",
        "curl --user=ada:«Zq81mmPP» -O https://site/x",
        "curl --proxy-user ada:«Zq81mmPP» https://site/x",
        "curl -U ada:«Zq81mmPP» -x proxy https://site/x",
    ),
    "URL with a password": (
        "postgresql://ada:«Zq81mmPP»@db:5432/jobs",
        "mysql+pymysql://root:«Zq81mmPP»@10.0.0.5/slurm_acct_db",
        "mongodb+srv://ada:«Zq81mmPP»@cluster0.invalid/?retryWrites=true",
        "https://ada:«Zq81mmPP»@git.invalid/group/project.git",
        "http_proxy=http://ada:«p%40ss»@proxy:3128",
        "amqp://guest:«Zq81mmPP»@mq:5672/",
        "git clone https://«Zq81mmPPZq81mmPPtoken»@git.invalid/x.git",
        "ftp://ada:«p@ss»@files.invalid/",
    ),
    "redis": (
        "redis://:«Zq81mmPP»@cache:6379/0",
        "rediss://default:«Zq81mmPP»@cache:6380",
        "redis-cli -h cache -a «Zq81mmPP» ping",
        "REDISCLI_AUTH=«Zq81mmPP» redis-cli ping",
        "AUTH «Zq81mmPPZq81» redis",
    )[:4],
    "SMTP": (
        "smtp://ada:«Zq81mmPP»@mail:587",
        "SMTP_PASS=«Zq81mmPP»",
        "EMAIL_HOST_PASSWORD = '«Zq81mmPP»'",
        "AUTH PLAIN «AGFkYQBacTgxbW1QUA==»",
        "swaks --auth-password «Zq81mmPP» --to x@invalid",
    ),
    "connection string": (
        "Server=db;Database=jobs;User Id=ada;Password=«Zq81mmPP»;",
        "Server=db;Uid=ada;Pwd=«Zq81mmPP»;Encrypt=yes",
        "host=db dbname=jobs user=ada password=«Zq81mmPP» sslmode=require",
        "DRIVER={ODBC};SERVER=db;UID=ada;PWD=«Zq81mmPP»",
    ),
    ".netrc": (
        "machine api.invalid login ada password «Zq81mmPP»",
        "machine api.wandb.invalid\n  login user\n  password «Zq81mmPPZq81mmPP»\n",
        "default login ada password «Zq81mmPP»",
    ),
    ".pgpass": (
        "db:5432:jobs:ada:«Zq81mmPP»",
        "*:*:*:ada:«Zq81mmPP»",
        "10.0.0.5:5432:*:postgres:«Zq81mmPP»",
    ),
    ".my.cnf": (
        "[client]\nuser=root\npassword=«Zq81mmPP»\n",
        '[mysqldump]\npassword = "«Zq81#mmPP»"\n',
    ),
    "htpasswd and shadow": (
        "ada:«$apr1$Zq81mmPP$kH7yJc3nR0d4Ee5Ff6Gg7.»",
        "ada:«$2y$05$Zq81mmPPZq81mmPPZq81mOeZq81mmPPZq81mmPPZq81mmPPZq81m»",
        "root:«$6$Zq81mmPP$Zq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mmPPZq81mm»:19700:0:99999:7:::",
        "ada:«{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=»",
    ),
    "Authorization: Bearer": (
        "Authorization: Bearer «abc.DEF-123_456»",
        "authorization: bearer «abcdef123456»",
        'curl -H "Authorization: Bearer «abcDEF123456»" https://site',
        "-H 'Authorization:Bearer «abcDEF123456»'",
        '{"Authorization": "Bearer «abcDEF123456»"}',
        "headers = {'Authorization': f'Bearer «abcDEF123456»'}",
        "> Authorization: Bearer «abcDEF123456»",
        "Proxy-Authorization: Bearer «abcDEF123456»",
    ),
    "Authorization: other schemes": (
        "Authorization: Basic «YWRhOlpxODFtbVBQ»",
        "authorization: token «abcDEF123456»",
        "Authorization: Negotiate «YIIGhgYJKoZIhvcSAQICAQBuggZ1»",
        "Authorization: «0123456789abcdef0123»",
        "Authorization: ApiKey «VnVhQ2ZHY0JDZGJrUW0tZTVhT3g6dWkybHAyYXhUTm1zeWFrdzl0dk5udw==»",
        'Authorization: Digest username="ada", realm="site", response="«6629fae49393a05397450978507c4ef1»"',
        "Authorization: AWS4-HMAC-SHA256 Credential=AKEXAMPLE/20261123/eu/s3/aws4_request, Signature=«fe5f80f77d5fa3beca038a248ff027»",
        "Authorization: Splunk «B5A79AAD-D822-46CC-80D1-819F80D7BFB0»",
        "authorization=«Zq81mmPPZq81»",
        "Authorization: GSSAPI «YIIGhgYJKoZIhvcSAQICAQBuggZ1»",
    ),
    "Authorization over two lines": (
        "Authorization: Bearer\n «abcDEF123456abc»\n",
        "Authorization:\n  Basic «YWRhOlpxODFtbVBQ»\n",
        "Authorization: Basic \\\n  «YWRhOlpxODFtbVBQ»",
    ),
    "bare Bearer and Basic": (
        "Bearer «abcDEF123456abcDEF»",
        "sent bearer «eyfoo-abcDEF123456abcDEF»",
        "got header Bearer «0a1b2c3d4e5f60718293»",
        "Basic «YWRhOlpxODFtbVBQ»",
    ),
    "API key, header": (
        "X-API-Key: «abcDEF123456»",
        "curl -H 'X-Api-Key: «abcDEF123456»'",
        "api-key: «abcDEF123456»",
        "X-Auth-Token: «gAAAAABfexample123456»",
        "PRIVATE-TOKEN: «abcDEF123456»",
        "X-Vault-Token: «abcDEF123456»",
        "X-SLURM-USER-TOKEN: «abcDEF123456»",
        "X-Amz-Security-Token: «FwoGZXIvYXdzEXAMPLE»",
        "x-goog-api-key: «abcDEF123456»",
        "Ocp-Apim-Subscription-Key: «0a1b2c3d4e5f60718293a4b5c6d7e8f9»",
    ),
    "API key, key and value": (
        "API_KEY=«abcDEF123456»",
        "api_key: '«abcDEF123456»'",
        '{"apiKey":"«abcDEF123456»"}',
        "apikey=«abcDEF123456»",
        'api_key = "«abcDEF123456»"',
        "client = Client(api_key='«abcDEF123456»')",
        "export MY_SERVICE_APIKEY=«abcDEF123456»",
        "tool --api-key «abcDEF123456»",
        "https://site/v1?api_key=«abcDEF123456»&x=1",
        "https://site/v1?x=1&key=«AbcDEF123456AbcDEF123456»",
    ),
    "secret, key and value": (
        "CLIENT_SECRET=«abcDEF123456»",
        '{"client_secret": "«abcDEF123456»"}',
        "secret: «abcDEF123456»",
        "SECRET_KEY = '«django-insecure-abc#123»'",
        '"secretKey": "«abcDEF123456»"',
        "app.secret='«abcDEF123456»'",
        "export FLASK_SECRET=«abcDEF123456»",
        "grant_type=client_credentials&client_id=x&client_secret=«abcDEF123456»",
    ),
    "token, key and value": (
        "TOKEN=«abcDEF123456»",
        "export ACCESS_TOKEN='«abcDEF123456»'",
        '{"access_token":"«abcDEF123456»","expires_in":3600}',
        '{"refresh_token": "«abcDEF123456»"}',
        "token: «abcDEF123456»",
        'auth_token = "«abcDEF123456»"',
        "tool --token «abcDEF123456»",
        "tool --auth-token=«abcDEF123456»",
        "https://site/x?access_token=«abcDEF123456»",
        "id_token=«abcDEF123456»&state=1",
        "FAULTLINE_ACCESS_TOKEN=«fl_abcDEF123456» faultline why 1",
        '"accessToken":"«abcDEF123456»"',
    ),
    "AWS": (
        "AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
        "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
        "export AWS_SESSION_TOKEN=«FwoGZXIvYXdzEJr//////////wEaDEXAMPLE»",
        '"SecretAccessKey": "«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»"',
        "key id «AK¦IAIOSFODNN7EXAMPLE» in use",
        "«AS¦IAIOSFODNN7EXAMPLE»",
        "aws configure set aws_secret_access_key «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
    ),
    "S3 presigned URL": (
        "https://b.s3.invalid/k?X-Amz-Credential=AKEXAMPLE%2F20261123&X-Amz-Signature=«0a1b2c3d4e5f60718293a4b5c6d7e8f9»",
        "https://b.s3.invalid/k?AWSAccessKeyId=AKEXAMPLE&Signature=«vjbyPxybdZaNmGa%2ByT272YEAiv4%3D»&Expires=1",
        "https://b.s3.invalid/k?X-Amz-Security-Token=«FwoGZXIvYXdzEEXAMPLE»&x=1",
    ),
    "Google": (
        "«AI¦zaSyA1234567890abcdefghijklmnopqrstu»",
        "https://maps.invalid/api?key=«AI¦zaSyA1234567890abcdefghijklmnopqrstu»&x=1",
        "«ya¦29.a0AfH6SMBexampleexampleexample»",
        '"private_key": "«-----BEGIN PRI¦VATE KEY-----\\nMIIEvQIBADANBg\\n-----END PRI¦VATE KEY-----\\n»"',
        "«GOC¦SPX-abcdefghijklmnopqrstuvwx1234»",
    ),
    "Azure": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq==»;EndpointSuffix=x",
        "Endpoint=sb://x.invalid/;SharedAccessKeyName=k;SharedAccessKey=«abcDEF123456abcDEF123456abcDEF123456abcDEF12=»",
        "https://a.blob.invalid/c?sv=2022-11-02&ss=b&sig=«abcDEF123456%2FabcDEF%3D»&se=2026",
        "AZURE_CLIENT_SECRET=«abc8Q~DEF123456abcDEF123456abcDEF123456a»",
        "AZURE_STORAGE_KEY=«abcDEF123456abcDEF==»",
        "SharedAccessSignature=«sv=2022&sig=abc%3D»",
    ),
    "GitHub": (
        "«gh¦p_abcdefghijklmnopqrstuvwxyz0123456789»",
        "«gh¦o_abcdefghijklmnopqrstuvwxyz0123456789» used",
        "(«gh¦s_abcdefghijklmnopqrstuvwxyz0123456789»)",
        "«github¦_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ012345»",
        "https://x-access-token:«gh¦s_abcdefghijklmnopqrstuvwxyz0123456789»@github.invalid/a/b",
    ),
    "GitLab": (
        "«gl¦pat-abcDEF123456abcDEF12»",
        "git clone https://oauth2:«gl¦pat-abcDEF123456abcDEF12»@gitlab.invalid/a.git",
        "CI_JOB_TOKEN=«gl¦cbt-64_abcDEF123456»",
        "«gl¦rt-abcDEF123456abcDEF12»",
        "«gl¦dt-abcDEF123456abcDEF12»",
    ),
    "Slack": (
        "«xo¦xb-123456789012-123456789012-abcDEF123456abcDEF123456»",
        "«xo¦xp-123456789012-123456789012-abcDEF123456»",
        "https://hooks.sl¦ack.com/services/«T00000000/B00000000/abcDEF123456abcDEF123456»",
        "«xa¦pp-1-A00000000-1234567890-abcdef0123456789»",
    ),
    "chat webhooks": (
        "https://discord.com/api/webhooks/123456789012345678/«abcDEF123456abcDEF123456abcDEF123456abcDEF123456abcDEF123456abcDEF»",
        "https://site.webhook.office.com/webhookb2/«11111111-2222-3333-4444-555555555555@66666666-7777-8888-9999-000000000000/IncomingWebhook/abcdef/0123»",
        "https://api.telegram.org/bot«123456789:AAabcDEF123456abcDEF123456abcDEF12345»/sendMessage",
    ),
    "Hugging Face": (
        "«h¦f_abcdefghijklmnopqrstuvwxyzABCDEFGH»",
        "HF_TOKEN=«h¦f_abcdefghijklmnopqrstuvwxyzABCDEFGH»",
        "HUGGING_FACE_HUB_TOKEN=«abcDEF123456»",
        "huggingface-cli login --token «h¦f_abcdefghijklmnopqrstuvwxyzABCDEFGH»",
    ),
    "Weights & Biases": (
        "WANDB_API_KEY=«0a1b2c3d4e5f60718293a4b5c6d7e8f901234567»",
        "wandb login «0a1b2c3d4e5f60718293a4b5c6d7e8f901234567»",
        "wandb.login(key='«0a1b2c3d4e5f60718293a4b5c6d7e8f901234567»')",
        "wandb login --relogin «0a1b2c3d4e5f60718293a4b5c6d7e8f901234567»",
    ),
    "OpenAI": (
        "«s¦k-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL»",
        "OPENAI_API_KEY=«s¦k-proj-abcDEF123456_abcDEF-123456abcDEF123456»",
        "Incorrect API key provided: «s¦k-abcdefghijklmnopqrstuvwxyz0123»",
    ),
    "Anthropic": (
        "«s¦k-ant-api03-abcDEF123456_abcDEF-123456abcDEF123456-AA»",
        "ANTHROPIC_API_KEY=«s¦k-ant-api03-abcDEF123456»",
        "x-api-key: «s¦k-ant-api03-abcDEF123456abcDEF»",
    ),
    "npm": (
        "//registry.npmjs.org/:_authToken=«np¦m_abcdefghijklmnopqrstuvwxyz0123456789»",
        "«np¦m_abcdefghijklmnopqrstuvwxyz0123456789»",
        "_auth = «YWRhOlpxODFtbVBQ»",
        "//npm.invalid/:_password=«WnE4MW1tUFA=»",
        "//npm.invalid/:_authToken=«11111111-2222-3333-4444-555555555555»",
    ),
    "PyPI": (
        "«py¦pi-AgEIcHlwaS5vcmcCJGFiY0RFRjEyMzQ1NgACKlszLCJhYmMi»",
        "twine upload -u __token__ -p «py¦pi-AgEIcHlwaS5vcmcCJGFiY0RFRjEyMzQ1NgACKlszLCJhYmMi» dist/*",
        "pip install --index-url https://ada:«Zq81mmPP»@pypi.invalid/simple x",
        "TWINE_PASSWORD=«Zq81mmPP»",
    ),
    "Docker": (
        '{"auths":{"https://index.docker.io/v1/":{"auth":"«YWRhOlpxODFtbVBQ»"}}}',
        "docker login -u ada -p «Zq81mmPP» registry.invalid",
        "docker login --username ada --password «Zq81mmPP»",
        "«dckr¦_pat_abcDEF123456abcDEF123456abc»",
        "podman login -p='«Zq81mmPP»' registry.invalid",
        '"identitytoken": "«abcDEF123456»"',
        "APPTAINER_DOCKER_PASSWORD=«Zq81mmPP»",
        "ENROOT_PASSWORD=«Zq81mmPP»",
    ),
    "NGC": (
        "NGC_API_KEY=«bnZhcGktYWJjREVGMTIzNDU2»",
        "NGC_CLI_API_KEY=«nv¦api-abcDEF123456abcDEF123456abcDEF123456»",
        "«nv¦api-abcDEF123456_abcDEF123456abcDEF123456abcDEF123456-a»",
    ),
    "JWT": (
        "«ey¦JhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJlLWV4YW1wbGU»",
        "SLURM_JWT=«ey¦JhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJlLWV4YW1wbGU»",
        "token «ey¦JhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJlLWV4YW1wbGU» expired",
        "«ey¦JhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.»",
    ),
    "SLURM_JWT": ("SLURM_JWT=«abcDEF123456»", "export SLURM_JWT='«abcDEF123456»'", "unset X; SLURM_JWT=«daemon-abc»"),
    "PEM private key": (
        "-----BEGIN RSA PRI¦VATE KEY-----\n«MIIEpAIBAAKCAQEAexample\nSecondLineOfTheKey==»\n-----END RSA PRI¦VATE KEY-----",
        "-----BEGIN PRI¦VATE KEY-----\n«MIIEvQIBADANBgkqhkiG9w0\nabc»\n-----END PRI¦VATE KEY-----\n",
        "-----BEGIN EC PRI¦VATE KEY-----\r\n«MHcCAQEEIexample»\r\n-----END EC PRI¦VATE KEY-----\r\n",
        "-----BEGIN ENCRYPTED PRI¦VATE KEY-----\n«MIIFHDBOBgkqhkiG9w0BBQ0w»\n-----END ENCRYPTED PRI¦VATE KEY-----",
        "cat key\n-----BEGIN PRI¦VATE KEY-----\n«MIIEvQIBADANBgkqhkiG9w0cutAndNeverEnded»\n",
        "-----BEGIN PGP PRI¦VATE KEY BLOCK-----\n\n«lQOYBF5example\n=abcd»\n-----END PGP PRI¦VATE KEY BLOCK-----",
    ),
    "ssh private key": (
        "-----BEGIN OPENSSH PRI¦VATE KEY-----\n«b3BlbnNzaC1rZXktdjEAAAAABG5vbmU\nAAAEbm9uZQ»\n-----END OPENSSH PRI¦VATE KEY-----",
        "  -----BEGIN DSA PRI¦VATE KEY-----\n  «MIIBugIBAAKBgQ»\n  -----END DSA PRI¦VATE KEY-----",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n«AAAAIexampleexampleexampleexampleexample=»\nPrivate-MAC: «0a1b2c3d4e5f»",
        "«b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW»",
    ),
    "WireGuard": (
        "PrivateKey = «yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=»",
        "PresharedKey = «yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=»",
    ),
    "age": ("«AGE-SECRET-¦KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S3JN54KH»",),
    "munge": (
        "MUNGE_KEY=«abcDEF123456»",
        "munge_key: «abcDEF123456»",
        "MUNGE:«AwQFAACexampleexampleexampleexampleexampleexample»:",
    ),
    "Kerberos": (
        "echo «Zq81mmPP» | kinit ada@SITE",
        "kinit ada <<< '«Zq81mmPP»'",
        "KRB5_PASSWORD=«Zq81mmPP»",
        "kadmin -p admin -w «Zq81mmPP» -q listprincs",
    ),
    "password through a pipe": (
        "echo '«Zq81mmPP»' | sudo -S dmesg",
        "echo «Zq81mmPP» | docker login -u ada --password-stdin",
        'echo "«Zq81mmPP»" | passwd --stdin ada',
        "echo 'ada:«Zq81mmPP»' | chpasswd",
    ),
    "cookies": (
        "Set-Cookie: session=«abcDEF123456»; Path=/; HttpOnly",
        "Cookie: sessionid=«abcDEF123456»; csrftoken=«xyzXYZ987654»",
        "curl -b 'session=«abcDEF123456»' https://site",
        "curl --cookie session=«abcDEF123456» https://site",
        "JSESSIONID=«0A1B2C3D4E5F60718293»",
        "PHPSESSID=«0a1b2c3d4e5f60718293»; path=/",
    ),
    "kubeconfig": (
        "    client-key-data: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo=»",
        "    token: «abcDEF123456»",
        "kubectl --token=«abcDEF123456» get pods",
        "kubectl config set-credentials ada --password=«Zq81mmPP»",
    ),
    "Kubernetes secret": (
        "kind: Secret\ndata:\n  password: «WnE4MW1tUFA=»\n",
        "kubectl create secret generic db --from-literal=password=«Zq81mmPP»",
        "kubectl create secret generic db --from-literal=pin=«Zq81mmPP»",
        "kind: Secret\nmetadata:\n  name: db\ndata:\n  pin: «WnE4MW1tUFA=»\n",
        "kubectl create secret docker-registry r --docker-password=«Zq81mmPP»",
    ),
    "Vault": (
        "VAULT_TOKEN=«hv¦s.CAESIJabcDEF123456abcDEF»",
        "«hv¦s.CAESIJabcDEF123456abcDEF123456»",
        "vault login «s.abcDEF123456abcDEF123456»",
        "Unseal Key 1: «abcDEF123456abcDEF123456abcDEF123456abcDEF12»",
        "Initial Root Token: «hv¦s.abcDEF123456abcDEF123456»",
    ),
    "Ansible vault": (
        "$ANSIBLE_VAULT;1.1;AES256\n«36613033313332663965336236613839\n3661303331»\n",
        "db: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    «36613033313332663965336236613839»\n",
        "ansible_ssh_pass=«Zq81mmPP»",
        "ansible_become_pass: «Zq81mmPP»",
        "ansible_become_password='«Zq81mmPP»'",
    ),
    "Terraform": (
        "TF_VAR_db_password=«Zq81mmPP»",
        'db_password = "«Zq81mmPP»"',
        "terraform apply -var 'db_password=«Zq81mmPP»'",
        "TF_TOKEN_app_terraform_io=«abcDEF123456.atlasv1.abcDEF»",
        "«abcDEF12345678.atlas¦v1.abcDEF123456abcDEF123456abcDEF123456abcDEF123456abcDEF123456abcD»",
    ),
    "otpauth": (
        "otpauth://totp/Site:ada?secret=«JBSWY3DPEHPK3PXP»&issuer=Site",
        "oathtool --totp -b «JBSWY3DPEHPK3PXP»",
        "TOTP_SECRET=«JBSWY3DPEHPK3PXP»",
    ),
    "license key": (
        "LICENSE_KEY=«ABCDE-12345-FGHIJ-67890»",
        "license_key: «ABCDE-12345-FGHIJ-67890»",
        "GRB_LICENSEKEY=«0a1b2c3d-0a1b»",
        '"licenseKey": "«ABCDE-12345-FGHIJ-67890»"',
    ),
    "Stripe": (
        "«s¦k_live_abcDEF123456abcDEF123456»",
        "«rk¦_live_abcDEF123456abcDEF123456»",
        "whs¦ec_«abcDEF123456abcDEF123456»",
    ),
    "SendGrid and Mailgun": (
        "«S¦G.abcDEF123456abcDEF1234.abcDEF123456abcDEF123456abcDEF123456abcDEF1»",
        "«key-¦0a1b2c3d4e5f60718293a4b5c6d7e8f9»",
    ),
    "Twilio": ("TWILIO_AUTH_TOKEN=«0a1b2c3d4e5f60718293a4b5c6d7e8f9»", "«S¦K0a1b2c3d4e5f60718293a4b5c6d7e8f9»"),
    "Databricks": ("«da¦pi0a1b2c3d4e5f60718293a4b5c6d7e8f9»", "DATABRICKS_TOKEN=«abcDEF123456»"),
    "Grafana": (
        "«gl¦sa_abcDEF123456abcDEF123456abcDEF12_0a1b2c3d»",
        "«gl¦c_eyJvIjoiMTIzNDU2IiwibiI6ImFiYyIsImsiOiJhYmMifQ==»",
    ),
    "Datadog and New Relic": (
        "DD_API_KEY=«0a1b2c3d4e5f60718293a4b5c6d7e8f9»",
        "DD_APP_KEY=«0a1b2c3d4e5f60718293a4b5»",
        "«NR¦AK-ABCDEF1234567890ABCDEF12345»",
    ),
    "Sentry": (
        "SENTRY_DSN=https://«0a1b2c3d4e5f60718293a4b5c6d7e8f9»@o1.ingest.invalid/1",
        "«sn¦trys_eyJpYXQiOjE3MDAwMDAwMDB9abcDEF123456»",
    ),
    "Comet, Neptune, ClearML": (
        "COMET_API_KEY=«abcDEF123456»",
        "NEPTUNE_API_TOKEN=«ey¦JhcGlfYWRkcmVzcyI6Imh0dHBzOi8v»",
        "CLEARML_API_SECRET_KEY=«abcDEF123456»",
        "clearml: access_key: x secret_key: «abcDEF123456»",
    ),
    "Linear, Atlassian, Notion": (
        "«lin¦_api_abcDEF123456abcDEF123456abcDEF123456ab»",
        "«ATA¦TT3xFfGF0abcDEF123456abcDEF123456abcDEF123456»",
        "«nt¦n_123456789012abcDEF123456abcDEF123456abcDEF»",
    ),
    "rclone": (
        "pass = «abcDEF123456-abcDEF»",
        "secret_access_key = «abcDEF123456»",
        'token = {"access_token":"«ya29abcDEF»","refresh_token":"«1//0gabc»"}',
        "RCLONE_CONFIG_PASS=«Zq81mmPP»",
    ),
    "MinIO and Ceph": (
        "MINIO_ROOT_PASSWORD=«Zq81mmPP»",
        "mc alias set s3 https://s3.invalid AKEX «abcDEF123456abcDEF»",
        "[client.admin]\n\tkey = «AQBexampleA1BAAexampleexampleexampleexam==»\n",
    ),
    "IPMI and BMC": (
        "ipmitool -I lanplus -H gpu01-bmc -U admin -P «Zq81mmPP» sel list",
        "ipmi-sel -h gpu01-bmc -u admin -p «Zq81mmPP»",
        "redfishtool -r bmc -u admin -p «Zq81mmPP» Systems",
        "IPMI_PASSWORD=«Zq81mmPP»",
        "IPMITOOL_PASSWORD=«Zq81mmPP»",
    ),
    "SNMP": (
        "snmpget -v2c -c «pr1vateComm» switch sysName.0",
        "snmpwalk -v3 -A «Zq81mmPP» -X «Yq81mmPP» switch",
        "rocommunity «pr1vateComm»",
    ),
    "CIFS mount": (
        "mount -t cifs //s/x /mnt -o username=ada,password=«Zq81mmPP»,vers=3.0",
        "smbclient //s/x -U ada%«Zq81mmPP»",
        "smbclient -U 'ada%«Zq81mmPP»' //s/x",
    ),
    "Jupyter": (
        "http://gpu01:8888/?token=«0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071»",
        "http://gpu01:8888/lab?token=«0a1b2c3d4e5f»",
        "c.NotebookApp.password = '«sha1:abc:0a1b2c3d»'",
        "JUPYTER_TOKEN=«abcDEF123456»",
    ),
    "VNC and code-server": (
        "VNC_PASSWORD=«Zq81mmPP»",
        "x11vnc -passwd «Zq81mmPP»",
        "hashed-password: «$argon2i$v=19$m=4096,t=3,p=1$abc$def»",
    ),
    "Ray and Dask": (
        "REDIS_PASSWORD=«Zq81mmPP»",
        "ray start --head --redis-password='«Zq81mmPP»'",
        "RAY_AUTH_TOKEN=«abcDEF123456»",
    ),
    "encryption keys": (
        "ENCRYPTION_KEY=«abcDEF123456abcDEF123456abcDEF12»",
        "FERNET_KEY=«yAnz5TF_lXXJte14tji3zlMNq-hd2rYUIgJBgB3fBmk=»",
        "openssl enc -aes-256-cbc -k «Zq81mmPP» -in x",
        "openssl enc -d -pass pass:«Zq81mmPP»",
        "gpg --batch --passphrase «Zq81mmPP» -c f",
        "SIGNING_KEY: «abcDEF123456»",
        "private_key=«abcDEF123456abcDEF»",
    ),
    "credentials in prose": (
        "Your password is: «Zq81mmPP»",
        "password is «Zq81mmPP1»",
        "the new password: «Zq81mmPP»",
        "Enter password: «Zq81mmPP1»",
        "Generated password «Zq81mmPP1» for ada",
    ),
    "credentials, key and value": (
        "CREDENTIALS=ada:«Zq81mmPP»",
        '"credential": "«abcDEF123456»"',
        "credentials: '«ada:Zq81mmPP»'",
        "PASSPHRASE=«correct-horse»",
        "passphrase: '«correct horse battery»'",
        "BORG_PASSPHRASE='«correct horse»'",
    ),
    "environment as printed": (
        "environ({'HOME': '/home/ada', 'DB_PASS': '«Zq81mmPP»', 'PATH': '/bin'})",
        "HOME=/home/ada DB_PASS=«Zq81mmPP» PATH=/bin",
        '"DB_PASS=«Zq81mmPP»",',
        "DB_PASS: «Zq81mmPP»",
        "HOME=/home/ada\0DB_PASS=«Zq81mmPP»\0PATH=/bin",
    ),
}

_HARMLESS = r"""
token_count=512
tokenizer=llama-3-8b
tokenizer: AutoTokenizer.from_pretrained("gpt2")
tokens_per_second: 18234.5
max_tokens=2048
max_new_tokens: 128
"max_tokens": 4096,
num_tokens = 1048576
n_tokens=131072 loss=2.113
pad_token_id: 0
eos_token_id=2
bos_token='<s>'
"eos_token": "</s>",
pad_token = "<pad>"
unk_token: <unk>
Setting `pad_token_id` to `eos_token_id`:2 for open-end generation.
Token indices sequence length is longer than the specified maximum sequence length for this model (1045 > 1024)
ValueError: unexpected token ':' in JSON at position 41
SyntaxError: unexpected token near 'fi'
syntax error near unexpected token `('
tokens: 512
token: 512/2048
step 512 tokens/s=1834 loss=1.92
special_tokens_map.json saved
tokenizer_config.json: 100% 1.29k/1.29k
vocab_size=50257 key_dim=64 value_dim=64
n_heads=32 n_kv_heads=8
num_key_value_heads=8
key_padding_mask=None
past_key_values=None
attn key shape torch.Size([8, 32, 1024, 64])
password authentication failed for user "slurm"
FATAL:  password authentication failed for user "slurm"
Access denied for user 'slurm'@'localhost' (using password: YES)
Access denied for user 'slurm'@'localhost' (using password: NO)
Permission denied (publickey,password).
Failed password for invalid user admin from 10.0.0.9 port 51234 ssh2
Failed password for root from 10.0.0.9 port 51234 ssh2
Accepted publickey for ada from 10.0.0.9 port 51234 ssh2: ED25519 SHA256:abcDEF123456abcDEF123456abcDEF123456abcDEF12
Accepted password for ada from 10.0.0.9 port 51234 ssh2
pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost=10.0.0.9 user=ada
KeyError: 'password'
KeyError: 'api_key'
KeyError: 'HF_TOKEN'
KeyError: "secret"
AttributeError: 'Config' object has no attribute 'password'
AttributeError: 'NoneType' object has no attribute 'token'
TypeError: __init__() missing 1 required positional argument: 'api_key'
NameError: name 'token' is not defined
ValueError: api_key must be set
openai.OpenAIError: The api_key client option must be set either by passing api_key to the client or by setting the OPENAI_API_KEY environment variable
wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])
wandb: Currently logged in as: ada (team). Use `wandb login --relogin` to force relogin
Cannot access gated repo: you must be authenticated. Please pass a token having permission to this repo
Token is valid (permission: read).
Your token has been saved to /home/ada/.cache/huggingface/token
password: None
password=None, token=None
api_key=None
token: null
"token": null,
"password": "",
password=''
DB_PASS=
export DB_PASS=$MY_PASS
export DB_PASS="$MY_PASS"
export DB_PASSWORD="${DB_PASSWORD:?not set}"
export WANDB_API_KEY=$(cat ~/.wandb)
HF_TOKEN=$(cat /run/secrets/hf)
HF_TOKEN=`cat /run/secrets/hf`
password = os.environ["DB_PASS"]
password=os.environ.get('DB_PASS')
token = os.getenv("HF_TOKEN")
token = tokenizer.decode(ids)
api_key=args.api_key,
password: str = Field(...)
password = getpass.getpass()
if token != expected_token:
token_embeddings = self.embed(tokens)
--password-file /etc/slurm/db.pass
--token-file=/run/token
password_file = "/etc/faultline/smtp.pass"
token_file = "/etc/faultline/ingest.token"
secret_file: /etc/slurm/jwt.key
AuthAltParameters=jwt_key=/var/spool/slurm/jwt_hs256.key
key_file=/etc/ssl/private/site.pem
ssl_key: /etc/ssl/private/site.pem
secretName: db-credentials
secretKeyRef: name: db
Secret "db-credentials" not found
Error: secret "regcred" not found
MountVolume.SetUp failed for volume "token" : secret "sa-token-x7k" not found
secret sauce of the schedule is backfill
the secret of this bug is the order of the ranks
It is no secret that NCCL hangs when one rank dies
this token is consumed by the parser
The password policy was changed on Monday.
Changing the password needs a new session.
passwordless ssh between nodes works
monkey=banana
turkey: 12
keyboard: us
hotkeys = none
keys=128 values=128
donkey_count=3
primary_key=id
foreign_key: run_id
sort_key=time
partition_key=cluster
cache_key=abc
key=value
key: value
Key: rank Value: 3
MASTER_ADDR=gpu01 MASTER_PORT=29500
NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0 NCCL_SOCKET_IFNAME=ib0
NCCL_IB_PKEY=0x7fff
NCCL_IB_GID_INDEX=3
pkey: 0xffff
P_Key 0x7fff QKey 0x80010000
q_key=0x11111111
Bad PKey from LID 0x12
mkey=0x0000000000000000
ibv_reg_mr lkey=0x1a2b3c rkey=0x1a2b3c
rkey: 0x9f8e7d6c remote access error
NCCL WARN NET/IB : Got completion from peer 10.0.0.7<51234> with status=12 opcode=0 len=0 vendor err 129 (Recv)
[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1048576)
NCCL INFO comm 0x55d0c8a7e2b0 rank 3 nranks 16 cudaDev 3 busId 3b000 commId 0x8f3a2b1c9d8e7f60 - Init COMPLETE
ncclUniqueId: 8f3a2b1c9d8e7f608f3a2b1c9d8e7f60
TCPStore key 'default_pg/0//cuda//0' not set
store.get('worker_0_key')
c10d::TCPStore wait timeout after 300000ms, waiting for keys: /default_pg/0
Received store key: store_based_barrier_key:1 (rank 3)
commit 391db37a922a51bcc5b95e28bf24b8f9bb90a1a1
HEAD is now at a922a51 make test-long
git rev-parse HEAD: a922a51b80b95e28bf24b8f9bb90a1a11c0e5cc9
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
docker://nvcr.io/nvidia/pytorch@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
md5: d41d8cd98f00b204e9800998ecf8427e
checksum=0a1b2c3d4e5f60718293a4b5c6d7e8f9
ETag: "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
GPU-8f3a2b1c-9d8e-7f60-1234-abcdefabcdef
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-8f3a2b1c-9d8e-7f60-1234-abcdefabcdef)
boot_id=8f3a2b1c9d8e7f608f3a2b1c9d8e7f60
machine-id: 8f3a2b1c9d8e7f608f3a2b1c9d8e7f60
run id 8f3a2b1c-9d8e-7f60-1234-abcdefabcdef started
trace_id=0a1b2c3d4e5f60718293a4b5c6d7e8f9 span_id=0a1b2c3d4e5f6071
X-Request-Id: 8f3a2b1c-9d8e-7f60-1234-abcdefabcdef
tensor base64 AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABB
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
weights[0:4]=3f800000 40000000 40400000 40800000
/home/ada/token-classification/run.py
/scratch/secrets-of-sleep/train.py
/data/password-cracking-study/output
/var/lib/slurm/munge.socket.2
/etc/munge/munge.key: Permission denied
munged: Error: Keyfile is insecure: "/etc/munge/munge.key" should not be readable by group
Munge decode failed: Expired credential
error: slurm_unpack_received_msg: MESSAGE_NODE_REGISTRATION_STATUS: auth_g_verify: Protocol authentication error
error: Munge encode failed: Failed to access "/var/run/munge/munge.socket.2": No such file or directory
auth/munge: _decode_cred: Munge decode failed: Rewound credential
Credential expired at 12:00:00
slurmstepd: error: Credential signature check: Expired credential
error: cred_p_verify: invalid credential signature
AuthType=auth/munge
CryptoType=crypto/munge
CredType=cred/munge
auth: user=ada gid=1000 result=ok
author=ada authored=2026-11-23
authority: kernel
authorized_keys has wrong mode 0666
Authorization failed for job 812
authorization: denied by policy
Unauthorized: 401
401 Unauthorized Bearer realm="https://auth.invalid/token",service="registry"
WWW-Authenticate: Bearer realm="https://auth.invalid/token",service="registry.invalid"
WWW-Authenticate: Basic realm="Restricted"
bearer of bad news
The bearer token is missing
Basic usage: train.py --lr 0.1
Basic block 12 has no terminator
basic auth is off
oauth2 provider answered 503
OAuth token expired, refreshing
Kerberos ticket expired
kinit: Cannot find KDC for realm "SITE" while getting initial credentials
kinit: Password incorrect while getting initial credentials
klist: No credentials cache found (filename: /tmp/krb5cc_1000)
session opened for user ada by (uid=0)
session=7 step=12
session_id: 12
New session 812 of user ada.
cookie: libfabric tag 0x1
magic cookie mismatch
srun: error: Unable to create step for job 812: Invalid job credential
sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified
slurmdbd: error: mysql_real_connect failed: 1045 Access denied for user
CUDA error: uncorrectable ECC error encountered
NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
mlx5_core 0000:3b:00.0: assert_var[0] 0x00000000
Out of memory: Killed process 1234 (python) total-vm:1234567kB, anon-rss:1234567kB
user:group:10:20:30
10:22:31:gpu01:step 12
2026-11-23 10:22:31,123 gpu01:rank3:info:start
gpu01:1234:1299 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0
root:x:0:0:root:/root:/bin/bash
ada:x:1000:1000::/home/ada:/bin/bash
rank0:0:12:34:56
http://gpu01:8888/tree
https://huggingface.co/meta-llama/Llama-3-8B
https://github.com/a/b/issues/12#issuecomment-1
git clone git@github.com:a/b.git
ssh ada@login.invalid
s3://bucket/checkpoints/step-1000
mailto:ada@site.invalid
tcp://10.0.0.7:29500
postgresql://ada@db:5432/jobs
curl -u ada https://site/api
curl -sS https://site/api -o out
curl -U https://proxy
mysql -p jobs
mysql -u root -p
mkdir -p /scratch/ada/run
cp -p a b
tar -xpf x.tar
srun -p gpu -N 2 -n 16 python train.py
sbatch -p debug --partition=gpu job.sh
docker run -p 8080:80 image
docker run -u 1000:1000 image
ssh -p 2222 host
nvidia-smi -pm 1
rsync -ap x y
scp -P 22 a b:
ray start --head --port=6379
python -u train.py
python -m torch.distributed.run --rdzv_id=812 --rdzv_endpoint=gpu01:29500
ps -u ada:users
chown ada:users f
#SBATCH --account=proj
export PASSES=3
passes: 12
compass=north
bypass=1
pass=2 fail=0
PASS: 12 FAIL: 0
pass: 3 of 5
test_password PASSED
password_test.py::test_reset PASSED
tests passed=812
first_pass=0.12 second_pass=0.31
secret_count: 3
key rotation done
api_key_rotation=daily
apikeys: 2
secrets: 0 found
credential cache: 3 entries
credentials=omit
private_key_path: /etc/ssl/x.pem
public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample ada@login
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQExample ada@login
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
sk-learn 1.4 is not scikit-learn
task-1234567890abcdefghijkl
desk-0123456789abcdefghijklmnop is free
risk_live_update=1
disk-000000000000000000000012 failed
hf_hub_download took 12 s
hf_transfer enabled
HF_HOME=/scratch/ada/hf HF_HUB_OFFLINE=1
WANDB_MODE=offline WANDB_PROJECT=llm WANDB_RUN_ID=8f3a2b1c
wandb: Run data is saved locally in /scratch/wandb/run-20261123_102231-8f3a2b1c
eyJ is how a JSON header begins
AIza is how keys of Google begin
npm_config_cache=/tmp/npm
npm_lifecycle_event=start
CUDA_VISIBLE_DEVICES=0,1,2,3 OMP_NUM_THREADS=8
PATH=/usr/bin:/bin LD_LIBRARY_PATH=/usr/lib
SSH_AUTH_SOCK=/tmp/ssh-abc/agent.1
XDG_SESSION_ID=12
GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D
SLURM_JOB_ID=812 SLURM_PROCID=3
SLURM_STEP_RESV_PORTS=12001
AWS_REGION=eu-central-1 AWS_PROFILE=train
AZURE_TENANT=site
Signature mismatch in kernel module nvidia
module verification failed: signature and/or required key missing - tainting kernel
signature: (Tensor, Tensor) -> Tensor
X-Amz-Date: 20261123T102231Z
sig=11 (SIGSEGV)
killed by signal: 9
code: 137 pin_memory=True pinned=8
PIN_MEMORY=1
otp application exited
license: Apache-2.0
License server gpu-lic01 is down
Licenses=matlab:12
LM_LICENSE_FILE=27000@lic01
community: default
seed=812 lr=0.1 wd=0.01
echo done | tee log
echo 12 | sort
vault: 3 nodes
wandb login failed
docker login failed: unauthorized
docker login -u ada registry.invalid
authentication token expired
auth_token_ttl=3600
token_ttl: 3600
token_expiry=2026-11-24T00:00:00Z
access_token_lifetime: 900
password_age: 90 days
password_min_length=12
passwd: password updated successfully
passwd: Authentication token manipulation error
sudo: a password is required
sudo: 3 incorrect password attempts
Enter password:
Password:
[sudo] password for ada:
ada@login's password:
Enter passphrase for key '/home/ada/.ssh/id_ed25519':
"""
HARMLESS: tuple[str, ...] = tuple(line for line in _HARMLESS.splitlines() if line)


def forms(kind: str) -> list[tuple[str, list[str]]]:
    """The texts of a kind, each with the secrets in it."""
    made = []
    for marked in SECRETS[kind]:
        text = marked.replace("¦", "")
        found = re.findall("«(.*?)»", text, re.DOTALL)
        made.append(
            (text.replace("«", "").replace("»", ""), [part for secret in found for part in secret.splitlines()])
        )
    return made
