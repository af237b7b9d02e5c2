package variables

func replaceForTest() { replaced = func(int) int { return 1 } }
