"""What the name of a file below a table's landing folder tells; the contract's own, which both sides need."""

from airflow_gddl.contract.dms_names import change_time, classify, digits_of, is_temporary, moment

__all__ = ["change_time", "classify", "digits_of", "is_temporary", "moment"]
