"""The algorithms: a module each, with its update, and the row in `settings.registry` that names it.

| | data | policy update |
|---|---|---|
| TRPO | real | trust region |
| TRPO-L | real | trust region on penalised advantages |
| PPO-L | real | clipped, on penalised advantages |
| CPO | real | constrained trust region |
| CMBPO | real + imagined | constrained trust region |
| SAC-L | replayed | along the slope of penalised values |
"""
