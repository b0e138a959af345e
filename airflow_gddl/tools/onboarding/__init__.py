"""A source into reviewed metadata: facts (of a landing folder or a database), proposals, what is new of them, text.

`rules`, `writing` and `yaml_text` are pure; `landing` and `database` read the source; `plan` combines them.
"""
