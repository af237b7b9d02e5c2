// Command durablecheck reports code that makes an orchestrator behave differently on replay. Run it
// with go vet or as a program of its own:
//
//	go vet -vettool=$(which durablecheck) ./...
//	durablecheck ./...
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
)

func main() {
	if len(os.Args) == 2 && slices.Contains([]string{"--version", "-version"}, os.Args[1]) {
		printVersion()
		return
	}
	singlechecker.Main(durablecheck.Analyzer)
}

// printVersion prints the versions of this module and of Go, as recorded in the build information.
func printVersion() {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		fmt.Println("the program was built without version information")
		return
	}
	fmt.Printf("%s %s, %s\n", build.Main.Path, build.Main.Version, build.GoVersion)
}
