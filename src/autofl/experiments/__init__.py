"""Settings become cells, plans and runs. Import `experiments.cell` for planning without PyTorch."""
