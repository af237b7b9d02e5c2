package console

import "net/http"

var overviewRoutes = []route{
	{method: http.MethodGet, path: "", serve: func(v *visit) error { return v.page("overview", "Overview", nil) }},
}
