// Command durable works on task hubs without an app: it has the commands of an app that need no code of the
// app. Install it with
//
//	go install github.com/durablefunctions-go/durablefunctions/handler/cmd/durable@latest
//
// In a folder with host.json, or with the app's environment variables, `durable hub list` lists the instances
// of the app's hub. `durable hub why` explains an instance by its history, without lines of code.
// `durable -init shop` writes a new app. `durable --help` lists all commands.
package main

import "github.com/durablefunctions-go/durablefunctions/handler"

func main() { handler.Tool() }
