module github.com/durablefunctions-go/durablefunctions

go 1.26
