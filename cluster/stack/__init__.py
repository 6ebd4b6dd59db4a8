"""The stack: Prefect server and worker, MLflow server and Ray head on one machine, loopback only (`make up`, `make down`)."""
