module app

go 1.26

require (
	example.com/lib v0.0.0
	github.com/durablefunctions-go/durablefunctions v0.0.0
)

replace (
	example.com/lib => ../lib
	github.com/durablefunctions-go/durablefunctions => ../../src/github.com/durablefunctions-go/durablefunctions
)
