"""What each tool writes, by its documentation and its code. Nothing of this project's readers is imported here."""
