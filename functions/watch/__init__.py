"""Our own event source: watches the hub and every target, and says what changed as Knative's ApiServerSource would."""
