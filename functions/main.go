// Command functions is the app: the functions in functions.go and the HTTP API
// in routes.go, run by package handler. The Functions host starts it as its
// custom handler; started by hand, it serves on a port of its own.
package main

import "github.com/durablefunctions-go/durablefunctions/handler"

func main() {
	handler.Main(handler.App{
		Functions: functions,
		Routes:    routes,
	})
}
