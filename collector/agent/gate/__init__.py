"""The gate: a small local file that says whether this node is fit for a job, for prologs to read without the service."""
