"""The judgement of a model: figures of both models in, a verdict out.

| file | does |
|---|---|
| `trial` | evaluates one model, in a worker |
| `model` | copies a model's files, and makes their digest |
| `figures` | checks the numbers that `evaluate` returned |
| `comparison` | pairs them, and tests their difference |
| `verdict` | decides, with reasons |

Private: `raysweep.pipeline.judging` runs it as a step.
"""
