{{- define "faultline.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "faultline.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "faultline.labels" -}}
{{ include "faultline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "faultline.tokens" -}}
{{- if .Values.tokens.existingSecret }}{{ .Values.tokens.existingSecret }}
{{- else if .Values.tokens.create }}{{ include "faultline.name" . }}-tokens
{{- else }}{{ fail "tokens.existingSecret: name a Secret with the agents' token, or set tokens.create=true" }}{{ end -}}
{{- end -}}

{{- define "faultline.tls" -}}
{{- if .Values.service.tls.existingSecret }}{{ .Values.service.tls.existingSecret }}
{{- else if not .Values.service.insecure }}{{ fail "service.tls.existingSecret: name a Secret of type kubernetes.io/tls; or set service.insecure=true where something in front does TLS and signing in" }}{{ end -}}
{{- end -}}

{{- define "faultline.server" -}}
{{- if .Values.agent.server }}{{ .Values.agent.server }}
{{- else if not .Values.service.enabled }}{{ fail "agent.server: give the service's address, as service.enabled is false" }}
{{- else }}{{ ternary "http" "https" (empty .Values.service.tls.existingSecret) }}://{{ include "faultline.name" . }}.{{ .Release.Namespace }}.svc:8514{{ end -}}
{{- end -}}

{{- define "faultline.agentPriority" -}}
{{- if .Values.agent.priority.existingClass }}{{ .Values.agent.priority.existingClass }}
{{- else if .Values.agent.priority.create }}{{ printf "%s-agent-%s" (include "faultline.name" .) .Release.Namespace | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "faultline.agentConfig" -}}
{{- $agent := .Values.agent -}}
{{- $ownCa := and .Values.service.enabled (not $agent.server) .Values.service.tls.existingSecret -}}
{{- $ca := or $agent.ca.existingSecret $agent.ca.existingConfigMap $ownCa -}}
server = {{ include "faultline.server" . | toJson }}
token_file = "/etc/faultline/tokens/{{ .Values.tokens.key }}"
{{- if $ca }}
ca = "/etc/faultline/ca/{{ $agent.ca.key }}"
{{- end }}
{{- with $agent.cluster | default .Values.service.cluster }}
cluster = {{ . | toJson }}
{{- end }}
spool = "/var/lib/faultline-agent"
spool_mb = {{ $agent.spoolMb }}

[node_names]
{{- range $kubernetes, $slurm := $agent.nodeNames }}
{{ $kubernetes | toJson }} = {{ $slurm | toJson }}
{{- end }}

[sources.kmsg]
enabled = {{ $agent.kmsg.enabled }}
{{- if $agent.dcgm.enabled }}

[sources.scrape]
urls = [{{ $agent.dcgm.url | toJson }}]
own_only = true
{{- end }}
{{- with $agent.paths }}

[sources.files]
paths = {{ . | toJson }}
{{- end }}
{{- with $agent.extraConfig }}

{{- . | nindent 0 }}
{{- end }}
{{- end -}}

{{- /* The versions of Secrets and ConfigMaps that exist, as one sum: a new one restarts the pods at the next upgrade. Nothing of
their content. Empty for helm template, which sees no cluster. */ -}}
{{- define "faultline.versions" -}}
{{- $found := list -}}
{{- range compact .secrets -}}
{{- with lookup "v1" "Secret" $.root.Release.Namespace . -}}{{- $found = append $found (list .metadata.uid .metadata.resourceVersion) -}}{{- end -}}
{{- end -}}
{{- range compact (.maps | default list) -}}
{{- with lookup "v1" "ConfigMap" $.root.Release.Namespace . -}}{{- $found = append $found (list .metadata.uid .metadata.resourceVersion) -}}{{- end -}}
{{- end -}}
{{- if $found }}{{ $found | toJson | sha256sum }}{{ end -}}
{{- end -}}
