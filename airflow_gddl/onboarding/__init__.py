"""A source into reviewed metadata: facts (of a landing folder or a database), proposals, three-way merge, text.

`rules`, `merging` and `yaml_text` are pure; `landing` and `database` read the source; `plan` combines them.
"""
