module github.com/relock-go/relock/cmd/relock

go 1.26.0

replace github.com/relock-go/relock => ../../

require (
	github.com/alecthomas/kong v1.17.0
	github.com/creack/pty v1.1.24
	github.com/redis/rueidis v1.0.79
	github.com/relock-go/relock v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.49.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/petermattis/goid v0.0.0-20260820044319-269ab09b5261 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
