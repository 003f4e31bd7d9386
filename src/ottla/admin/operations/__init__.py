"""What administrators ask of brokers, each as one generator without I/O. PURE."""
