package console

import "net/http"

var instancesRoutes = []route{
	{method: http.MethodGet, path: "instances", serve: func(v *visit) error { return v.page("instances", "Instances", nil) }},
}
