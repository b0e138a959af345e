"""The engines under crashes, rivals and random histories; the fixture `spark` is whichever engine is tested."""
