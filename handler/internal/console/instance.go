package console

var instanceRoutes = []route{}
