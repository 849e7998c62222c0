"""Settings become cells, plans and simulations. Import `experiments.cell` for planning without PyTorch."""
