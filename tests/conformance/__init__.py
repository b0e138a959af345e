"""Models of the tools that write change files, and a judge of programs that read them (docs/conformance.md)."""
