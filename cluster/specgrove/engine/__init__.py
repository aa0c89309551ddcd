"""The inference engine: transformers plus two hooks, a KV pool of token slots, and the tokenizer."""
