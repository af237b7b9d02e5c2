package console

import "net/http"

var entitiesRoutes = []route{
	{method: http.MethodGet, path: "entities", serve: func(v *visit) error { return v.page("entities", "Entities", nil) }},
}
