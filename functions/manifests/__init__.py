"""What is generated of `deploy/`, from the declarations of the functions."""
