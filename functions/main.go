// Command functions is the sample app: the functions in functions.go and the HTTP API in
// routes.go, run by package handler. The Functions host starts it as a custom handler.
// Started directly, it listens on its own port.
package main

import "github.com/durablefunctions-go/durablefunctions/handler"

func main() {
	handler.Main(handler.App{
		Registrations: functions,
		Routes:        routes,
	})
}
