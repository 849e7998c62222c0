"""Many runs are jobs: from settings to run folders. Nothing is imported here, since planning needs no PyTorch."""
