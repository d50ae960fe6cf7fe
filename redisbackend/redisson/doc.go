// Package redisson tests redisbackend.WithRedisson with Redisson itself: processes of Java and of Go that use the same
// locks. It needs a JDK and Redisson's jars:
//
//	mvn --file redisbackend/redisson/java dependency:copy-dependencies -DoutputDirectory=/a/folder
//	RELOCK_REDISSON=/a/folder go test -tags redisson ./redisbackend/redisson
//
// Without RELOCK_REDISSON its tests are skipped, and without the tag not built. The stage redisson of .ci/run
// sets both.
package redisson
