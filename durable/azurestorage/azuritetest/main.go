package azuritetest

import (
	"flag"
	"os"
	"testing"
)

// Main is a TestMain that lets more tests run at a time than there are processors, since
// they mostly wait.
func Main(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // a number in range
	}
	os.Exit(m.Run())
}
