// Package handler runs a durable app as an Azure Functions custom handler, or
// on its own.
//
// An app is a value, [App]: its durable functions, its functions with other
// triggers, and its HTTP routes. [Main] runs one and is all that a main function
// needs:
//
//	func main() {
//		handler.Main(handler.App{Functions: functions, Triggers: triggers, Routes: routes})
//	}
//
// # Triggers
//
// A function that a clock, a message or a blob starts is an ordinary Go function
// that gets its payload as the type it asks for. What it writes are values, too:
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
// The host starts a function if it finds its function.json in a folder of its
// name. These folders are build products, as the program is:
//
//	go run . -write-functions .
//
// writes those of all triggers, and removes those that are no more.
//
// # What the host does, and what is done about it
//
// The Functions host starts the program with FUNCTIONS_CUSTOMHANDLER_PORT set,
// asks for GET / until there is an answer, and then passes on the HTTP requests
// of the functions that have a function.json. It stops the program by killing
// it, and restarts it at most twice when it exits with an error; after that the
// host itself shuts down. Hence:
//
//  1. The server listens before it does anything else. GET / is answered at
//     once, whatever state the rest is in.
//  2. Nothing but a port that cannot be listened on ends the program. A setting
//     that is wrong, a storage account that cannot be reached and a panic in a
//     route all leave the server running. While it has no task hub to work on
//     it answers every call with status 503 and the reason.
//  3. What is logged goes to standard output, one line a record, which the host
//     logs as information; behind the host warnings and errors go to standard
//     error, which it logs as such.
//  4. The program ends by itself when its parent, the host, has died.
//  5. An orderly stop is a courtesy. Everything is correct without it, only
//     slower: leases run out instead of being released.
//
// # Behind the host and standalone
//
// Behind the host the settings come from host.json, from the variables that
// override it, and from the environment that the host hands down. Standalone,
// which means that FUNCTIONS_CUSTOMHANDLER_PORT is not set, the Values of
// local.settings.json become environment variables first, as `func start` does
// it, and the management API answers at the path of the .NET extension,
// /runtime/webhooks/durabletask, too. No function may own that path behind a
// host, so there it is /api/durabletask only.
//
// The README lists every setting, variable and route.
package handler
