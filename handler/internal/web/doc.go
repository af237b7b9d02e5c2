// Package web is what all HTTP requests to an app pass, and how errors become answers: the
// origin of URLs, pages of other sites, bounds of bodies, paths, queries and JSON. It knows
// neither the routes nor the hub behind them.
package web
