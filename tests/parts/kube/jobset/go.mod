module forebay.test/jobset

go 1.24

require sigs.k8s.io/jobset v0.10.1
