// Package web processes all HTTP requests to an app before they reach its routes, and turns errors into
// answers. It determines the origin of URLs, refuses pages of other sites, limits bodies, and parses
// paths, queries and JSON. It knows neither the routes nor the hub behind them.
package web
