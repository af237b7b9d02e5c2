package azuritetest

import (
	"flag"
	"os"
	"testing"
)

// Main is a TestMain that runs up to eight parallel tests at the same time, regardless of the
// number of processors, because they mostly wait. It keeps an explicit -test.parallel.
func Main(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // a valid number, so this cannot fail
	}
	os.Exit(m.Run())
}
