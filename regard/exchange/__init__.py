"""Other people's formats: Hugging Face in and out, CTranslate2 and ONNX out."""
