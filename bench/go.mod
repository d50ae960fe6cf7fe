module github.com/relock-go/relock/bench

go 1.26.0

require github.com/relock-go/relock v0.0.0

require golang.org/x/sync v0.24.0

replace github.com/relock-go/relock => ../
