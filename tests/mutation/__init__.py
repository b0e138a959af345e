"""Random mutants of the code that decides what tables hold: which of them do the tests notice?"""
