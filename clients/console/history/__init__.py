"""What a cluster was like during the last half hour: samples, figures over time, charts."""
