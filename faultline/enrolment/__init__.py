"""Enrolment by instance identity: an agent shows a document that its cloud signed about its machine, once, and its token is
bound to that machine's name. docs/security.md has the threat model."""
