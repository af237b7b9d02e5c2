package durablecheck

import (
	"go/ast"
	"go/types"
	"path"
	"strings"
)

// An entry contains the advice for some functions, methods and variables of a package. names is a list
// of path.Match patterns, separated by spaces; methods are written as Type.Method. A nil advice means
// allowed.
type entry struct {
	names  string
	advice *advice
}

var (
	clock      = &advice{ruleClock, "reads the machine's clock, which differs on replay", "use ctx.Now()"}
	since      = &advice{ruleClock, "reads the machine's clock, which differs on replay", "use ctx.Now().Sub(t)"}
	until      = &advice{ruleClock, "reads the machine's clock, which differs on replay", "use t.Sub(ctx.Now())"}
	sleep      = &advice{ruleTimer, "waits outside of the history, blocks the worker and repeats on each replay", "use ctx.Sleep"}
	timer      = &advice{ruleTimer, "is a timer outside of the history, which is lost if the process ends and starts again on each replay", "use ctx.Timer"}
	timerFunc  = &advice{ruleTimer, "is a timer outside of the history, which is lost if the process ends and starts again on each replay", "use durable.Go with ctx.Sleep"}
	random     = &advice{ruleRandom, "gives another value on each replay", "use ctx.NewUUID(), a rand.New with a seed from the input, or an activity"}
	uuids      = &advice{ruleRandom, "gives another value on each replay", "use ctx.NewUUID()"}
	locks      = &advice{ruleSync, "synchronizes goroutines, which an orchestrator does not have, and can block the worker", "use plain variables: only one branch of durable.Go runs at a time"}
	atomics    = &advice{ruleSync, "shares state with other goroutines, which the history does not record", "use plain variables: only one branch of durable.Go runs at a time"}
	onces      = &advice{ruleSync, "keeps state of an earlier run, so a replay may take another path", "compute the value again, or in an activity"}
	waitGroups = &advice{ruleSync, "waits for goroutines, which the history does not record", "use durable.Go and durable.AwaitAll"}
	env        = &advice{ruleEnv, "depends on the machine and the process, which may differ on replay", "pass the value in as input or read it in an activity"}
	exit       = &advice{ruleIO, "ends the worker with all its instances, and again on each replay", "return an error"}
	files      = &advice{ruleIO, "does I/O that the history does not record and each replay repeats", "do it in an activity"}
	network    = &advice{ruleIO, "uses the network, which the history does not record and each replay repeats", "do it in an activity"}
	database   = &advice{ruleIO, "uses a database, which the history does not record and each replay repeats", "do it in an activity"}
	process    = &advice{ruleIO, "runs a process, which the history does not record and each replay repeats", "do it in an activity"}
	thread     = &advice{ruleThread, "ties an orchestrator, which is a coroutine, to a thread, which makes the Go runtime end the process", "do it in an activity"}
	goexit     = &advice{ruleThread, "ends the orchestrator without a result", "return an error"}
	deadlines  = &advice{ruleContext, "waits on a context.Context, which ends by the machine's clock instead of the history", "use ctx.Timer, AwaitTimeout or an event"}
	logs       = &advice{ruleLog, "prints again on each replay", "prefer ctx.Logger(), which is silent while replaying"}
	fatals     = &advice{ruleIO, "ends the worker with all its instances, and again on each replay", "return an error"}
)

// forbidden lists, by package path, what orchestrators must not use. The first matching entry applies.
// Names without a matching entry, and packages that are not listed, are allowed.
var forbidden = map[string][]entry{
	"time": {
		{"Now", clock},
		{"Since", since},
		{"Until", until},
		{"Sleep", sleep},
		{"After Tick NewTimer NewTicker", timer},
		{"AfterFunc", timerFunc},
	},
	"math/rand": {
		// Generators seeded by the caller return the same numbers on each replay.
		{"New NewSource NewZipf Rand.* Zipf.* Source.* Source64.*", nil},
		{"*", random},
	},
	"math/rand/v2": {
		{"New NewPCG NewChaCha8 NewZipf Rand.* PCG.* ChaCha8.* Zipf.* Source.*", nil},
		{"*", random},
	},
	"crypto/rand": {{"*", random}},
	// These ignore the source of random bytes that they get, or have none.
	"crypto/cipher":  {{"NewGCMWithRandomNonce", random}},
	"crypto/ecdh":    {{"Curve.GenerateKey", random}},
	"crypto/ecdsa":   {{"GenerateKey", random}},
	"crypto/ed25519": {{"GenerateKey", random}},
	"crypto/mlkem":   {{"GenerateKey* EncapsulationKey*.Encapsulate", random}},
	"crypto/rsa":     {{"GenerateKey GenerateMultiPrimeKey", random}},
	"hash/maphash":   {{"MakeSeed Hash.*", random}},
	"github.com/google/uuid": {
		{"New NewString NewRandom NewUUID NewV6 NewV7 NewV7FromReader NewDCE* GetTime", uuids},
	},
	"sync": {
		// These end an operation that is reported already.
		{"*.Unlock *.RUnlock WaitGroup.Done", nil},
		{"WaitGroup.*", waitGroups},
		{"Once.* OnceFunc OnceValue OnceValues Pool.*", onces},
		{"*", locks},
		{"*.*", locks},
	},
	"sync/atomic": {{"*", atomics}, {"*.*", atomics}},
	"runtime": {
		{"LockOSThread", thread},
		{"Goexit", goexit},
		{"NumCPU NumGoroutine GOMAXPROCS ReadMemStats", env},
	},
	"context": {
		{"WithTimeout* WithDeadline* AfterFunc Cause Context.Done Context.Err Context.Deadline", deadlines},
	},
	"os": {
		{"IsExist IsNotExist IsPermission IsTimeout IsPathSeparator Expand NewSyscallError", nil},
		{"Err* SyscallError.* LinkError.*", nil},
		{"Exit", exit},
		{"Args Environ ExpandEnv Getenv LookupEnv Setenv Unsetenv Clearenv", env},
		{"Hostname Executable Get* User*Dir TempDir", env},
		{"*", files},
		{"*.*", files},
	},
	"os/exec":       {{"Err* Error.* ExitError.*", nil}, {"*", process}, {"*.*", process}},
	"os/signal":     {{"*", env}},
	"os/user":       {{"*Error.*", nil}, {"*", env}, {"*.*", env}},
	"path/filepath": {{"Abs", env}, {"EvalSymlinks Glob Walk WalkDir", files}},
	"io/ioutil":     {{"Discard NopCloser ReadAll", nil}, {"*", files}},
	"text/template": {{"ParseFiles ParseGlob Template.ParseFiles Template.ParseGlob", files}},
	"html/template": {{"ParseFiles ParseGlob Template.ParseFiles Template.ParseGlob", files}},
	"plugin":        {{"*", files}, {"*.*", files}},
	"syscall":       {{"Errno.* Signal.*", nil}, {"*", files}},
	"net": {
		{"ParseIP ParseCIDR ParseMAC JoinHostPort SplitHostPort IPv4 IPv4Mask CIDRMask *AddrFromAddrPort", nil},
		{"Err* IPv4* IPv6*", nil},
		{"IP.* IPMask.* IPNet.* HardwareAddr.* Flags.* *Addr.* *Error.*", nil},
		{"*", network},
		{"*.*", network},
	},
	"net/http": {
		{"Get Head Post PostForm ListenAndServe* Serve ServeTLS ServeContent ServeFile* Redirect Error NotFound", network},
		{"DefaultClient DefaultTransport DefaultServeMux Handle HandleFunc", network},
		{"Client.* Transport.* RoundTripper.* Server.* ServeMux.* Handler.* HandlerFunc.* Response*er.*", network},
	},
	"net/rpc":      {{"Dial* Accept Serve* Client.* Server.*", network}},
	"net/smtp":     {{"SendMail Dial NewClient Client.*", network}},
	"crypto/tls":   {{"Dial* Listen Dialer.* Conn.*", network}},
	"log/syslog":   {{"*", network}, {"*.*", network}},
	"database/sql": {{"Open OpenDB Drivers DB.* Conn.* Tx.* Stmt.* Rows.* Row.*", database}},
	"fmt":          {{"Print Printf Println", logs}, {"Scan Scanf Scanln", files}},
	"log": {
		{"Fatal* Logger.Fatal*", fatals},
		{"Print* Panic* Output Default SetOutput SetFlags SetPrefix Logger.Print* Logger.Panic* Logger.Output", logs},
	},
	"log/slog": {
		{"Debug Info Warn Error DebugContext InfoContext WarnContext ErrorContext Log LogAttrs With", logs},
		{"Default SetDefault", logs},
	},
}

// lookup returns the advice for a function, a method or a package-level variable, nil if it is
// allowed. listed reports whether its package is listed.
func lookup(obj types.Object) (adv *advice, listed bool) {
	entries, listed := forbidden[packagePath(obj.Pkg())]
	name := listedName(obj)
	for _, e := range entries {
		for pattern := range strings.FieldsSeq(e.names) {
			if matches(pattern, name) {
				return e.advice, true
			}
		}
	}
	return nil, listed
}

// matches reports whether pattern matches name. A pattern without a dot matches no method.
func matches(pattern, name string) bool {
	if strings.Contains(pattern, ".") != strings.Contains(name, ".") {
		return false
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// listedName returns Func, Type.Method or Variable.
func listedName(obj types.Object) string {
	if fn, ok := obj.(*types.Func); ok {
		if r := receiver(fn); r != "" {
			return r + "." + fn.Name()
		}
	}
	return obj.Name()
}

// isListed reports whether e names a forbidden function, method or variable.
func isListed(info *types.Info, e ast.Expr) bool {
	var id *ast.Ident
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	default:
		return false
	}
	obj := info.Uses[id]
	if obj == nil || obj.Pkg() == nil {
		return false
	}
	adv, _ := lookup(origin(obj))
	return adv != nil
}

// isListedCall reports whether e calls a forbidden function or method.
func isListedCall(info *types.Info, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && isListed(info, call.Fun)
}
