// Package handler runs a durable app as an Azure Functions custom handler, or as a standalone program.
//
// An [App] consists of durable functions, functions with other triggers, and HTTP routes. [Main] runs
// it:
//
//	func main() {
//		handler.Main(handler.App{Registrations: functions, Triggers: triggers, Routes: routes})
//	}
//
// [Load], [New] and [Server.Run] do the same in separate steps.
//
// # Triggers
//
// A function with a trigger is a Go function with a typed payload and typed outputs:
//
//	var triggers = []handler.Trigger{
//		handler.Timer("Nightly", "0 30 2 * * *", nightly),
//		handler.Queue("Confirm", "orders", confirm, receipts),
//	}
//
//	var receipts = handler.QueueOutput[Receipt]("receipts", "receipts-to-print")
//
//	func confirm(ctx context.Context, call *handler.Invocation, o Order) error {
//		if _, err := durable.Start(ctx, call.Client, Ship, o); err != nil {
//			return err // the host delivers the message again
//		}
//		receipts.Put(call, Receipt{o.ID, "confirmed"})
//		return nil
//	}
//
// The host calls a function only if the app's root contains a folder with the function's name and a
// function.json. Write these files whenever you build the program:
//
//	go run . -write-functions .
//
// The command writes the function.json of every trigger and removes obsolete ones.
//
// # Behind the Functions host
//
// The Functions host starts the program with FUNCTIONS_CUSTOMHANDLER_PORT set. It sends GET / until it
// gets an answer. Then it forwards the HTTP requests of all functions that have a function.json. To
// stop the program, the host kills it. If the program exits with an error, the host restarts it at most
// twice and then shuts down. The server is therefore built on these rules:
//
//  1. It listens before it does anything else, and always answers GET / at once.
//  2. It exits only if it cannot listen on the port. If a setting is wrong or storage is unreachable,
//     it answers every request with status 503 and the reason. If a route panics, it answers with
//     status 500.
//  3. It writes its log to standard output, one line per record, which the host logs as information.
//     It writes warnings and errors to standard error.
//  4. It stops when its parent process, the host, has died.
//  5. It does not depend on a graceful shutdown. After a crash its leases expire.
//
// Settings come from host.json, from the environment variables that override it, and from the
// environment of the host.
//
// # Standalone
//
// The program runs standalone if FUNCTIONS_CUSTOMHANDLER_PORT is not set. It first turns the Values of
// local.settings.json into environment variables, as `func start` does. The management API is also
// available at the path of the .NET extension, /runtime/webhooks/durabletask. Behind the host it is
// only at /api/durabletask, because the host reserves the extension's path.
//
// The pages in durable/docs list all settings, environment variables and routes.
package handler
