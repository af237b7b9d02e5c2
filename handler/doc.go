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
// A function with a trigger is an ordinary Go function with a typed payload and typed
// outputs:
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
// The host runs a function if there is a function.json in a folder of its name. These
// folders are build products, as the program is:
//
//	go run . -write-functions .
//
// writes those of all triggers, and removes those that are obsolete.
//
// # Behind the Functions host
//
// The Functions host starts the program with FUNCTIONS_CUSTOMHANDLER_PORT set, sends GET /
// until it gets an answer, and then passes on the HTTP requests of functions that have a
// function.json. It kills the program to stop it, and restarts it at most twice when it
// exits with an error; then the host shuts down. Therefore:
//
//  1. The server listens first, and answers GET / at once in every state.
//  2. Only a port that cannot be listened on ends the program. With a wrong setting or
//     storage that is out of reach the server answers every call with status 503 and the
//     reason. A panic in a route becomes status 500.
//  3. The log goes to standard output, one line a record, which the host logs as
//     information; warnings and errors go to standard error.
//  4. The program ends when its parent, the host, has died.
//  5. The program need not be stopped in order: without that, leases expire instead of
//     being released.
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
