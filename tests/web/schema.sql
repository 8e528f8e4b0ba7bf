-- The store's tables as the pages read them; columns are those of store/duckdb/schema.py.
CREATE SCHEMA raw; CREATE SCHEMA model;
CREATE TABLE raw.logs (time TIMESTAMP, time_quality VARCHAR, sender_time TIMESTAMP, received_time TIMESTAMP,
  resolution_us BIGINT, cluster VARCHAR, host VARCHAR, source VARCHAR, format VARCHAR, unit VARCHAR, pid BIGINT,
  facility VARCHAR, severity VARCHAR, message VARCHAR, event VARCHAR, job_id BIGINT, entities VARCHAR, tags VARCHAR[],
  raw VARCHAR, file VARCHAR, line BIGINT);
CREATE VIEW raw.log_view AS SELECT * FROM raw.logs;
CREATE TABLE raw.artifacts (cluster VARCHAR, job_id BIGINT, restarts BIGINT, kind VARCHAR, path VARCHAR, host VARCHAR,
  content VARCHAR, truncated BOOLEAN, file VARCHAR, taken_at TIMESTAMP);
CREATE TABLE raw.jobs (cluster VARCHAR, job_id BIGINT, array_job_id BIGINT, array_task_id BIGINT, restarts BIGINT, db_index BIGINT,
  name VARCHAR, "user" VARCHAR, uid BIGINT, account VARCHAR, partition VARCHAR, qos VARCHAR, state VARCHAR, cancelled_by VARCHAR,
  reason VARCHAR, exit_code BIGINT, exit_signal BIGINT, derived_exit_code VARCHAR, submit TIMESTAMP, start TIMESTAMP, "end" TIMESTAMP,
  time_limit_s BIGINT, node_list VARCHAR, nodes VARCHAR[], gpus BIGINT, gpu_index VARCHAR, work_dir VARCHAR, submit_line VARCHAR,
  failed_node VARCHAR, reservation VARCHAR, observed_at TIMESTAMP, host VARCHAR, source VARCHAR, file VARCHAR, line BIGINT, tres VARCHAR, waits_for VARCHAR[]);
CREATE TABLE raw.steps (cluster VARCHAR, job_id BIGINT, db_index BIGINT, submit TIMESTAMP, step_id VARCHAR, name VARCHAR, state VARCHAR,
  exit_code BIGINT, exit_signal BIGINT, start TIMESTAMP, "end" TIMESTAMP, node_list VARCHAR, nodes VARCHAR[], file VARCHAR, line BIGINT);
CREATE TABLE raw.topology (cluster VARCHAR, switch VARCHAR, child VARCHAR, kind VARCHAR, file VARCHAR);
CREATE TABLE raw.environments (cluster VARCHAR, job_id BIGINT, restarts BIGINT, step VARCHAR, host VARCHAR, name VARCHAR, value VARCHAR,
  seen_at TIMESTAMP, file VARCHAR);
CREATE TABLE raw.settings (cluster VARCHAR, scope VARCHAR, name VARCHAR, value VARCHAR, source VARCHAR);
CREATE TABLE raw.metrics (time TIMESTAMP, cluster VARCHAR, host VARCHAR, metric VARCHAR, value DOUBLE, device VARCHAR,
  labels VARCHAR);
CREATE TABLE raw.links (cluster VARCHAR, host VARCHAR, device VARCHAR, switch VARCHAR, switch_port VARCHAR,
  plane VARCHAR, rail VARCHAR, source VARCHAR, time TIMESTAMP);
CREATE TABLE model.events (event_id VARCHAR, time TIMESTAMP, time_quality VARCHAR, resolution_us BIGINT,
  received_time TIMESTAMP, cluster VARCHAR, host VARCHAR, source VARCHAR, unit VARCHAR, layer VARCHAR, event VARCHAR,
  severity VARCHAR, device VARCHAR, job_id BIGINT, message VARCHAR, entities VARCHAR, "count" BIGINT,
  incident_id VARCHAR, file VARCHAR, line BIGINT, refs VARCHAR, authority VARCHAR);
CREATE TABLE model.runs (run_key VARCHAR, cluster VARCHAR, job_id BIGINT, attempt BIGINT, array_job_id BIGINT,
  array_task_id BIGINT, name VARCHAR, "user" VARCHAR, account VARCHAR, partition VARCHAR, state VARCHAR,
  exit_code BIGINT, exit_signal BIGINT, submit TIMESTAMP, start TIMESTAMP, "end" TIMESTAMP, node_list VARCHAR,
  nodes VARCHAR[], node_count BIGINT, gpus BIGINT, gpu_index VARCHAR, time_limit_s BIGINT, work_dir VARCHAR,
  submit_line VARCHAR, category VARCHAR, incident_id VARCHAR, confidence DOUBLE, document VARCHAR);
CREATE TABLE model.facts (name VARCHAR, value VARCHAR);
CREATE TABLE model.incidents (incident_id VARCHAR, cluster VARCHAR, start TIMESTAMP, "end" TIMESTAMP, severity VARCHAR,
  category VARCHAR, root_event VARCHAR, root_host VARCHAR, root_device VARCHAR, document VARCHAR);
CREATE TABLE model.node_states (time TIMESTAMP, until TIMESTAMP, cluster VARCHAR, host VARCHAR, state VARCHAR,
  reason VARCHAR, actor VARCHAR, source VARCHAR);
