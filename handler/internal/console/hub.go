package console

import "net/http"

var hubRoutes = []route{
	{method: http.MethodGet, path: "hub", serve: func(v *visit) error { return v.page("hub", "Hub", nil) }},
}
