PRESETS = {"gpt2": "", "llama3": "", "qwen2": ""}
