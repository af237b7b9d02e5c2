package eventjson

var CutAssembly = cutAssembly
