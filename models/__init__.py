"""Model families, one file per Hugging Face ``model_type``, and the readers of their checkpoints."""
