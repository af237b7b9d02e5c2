module example.com/lib

go 1.26

require github.com/durablefunctions-go/durablefunctions v0.0.0
